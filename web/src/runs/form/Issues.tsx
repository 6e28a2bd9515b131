import { CircleAlert, Info } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import type { Schema } from "@/api/types";
import { BuildImage } from "@/sandboxes/BuildImage";
import { Coded } from "@/ui/Coded";
import styles from "./form.module.css";

type Issue = Schema<"IssueSaid">;

/** Issues of the server rather than of a field: they are shown beside the form, with a way to mend them. */
export const BEFORE_START: ReadonlySet<string> = new Set([
  "MODEL_NOT_FOUND",
  "DEFAULT_MODEL",
  "PROVIDER_KEY_REFUSED",
  "PROVIDER_FAILING",
  "IMAGE_NOT_BUILT",
  "SCRIPT_ANSWERS",
]);
const IN_SETTINGS = new Set(["MODEL_NOT_FOUND", "PROVIDER_KEY_REFUSED", "PROVIDER_FAILING"]);

/** A server without any model needs other words than one that lacks the model asked for. */
function wordsOf({ code, params }: Issue): string {
  return code === "MODEL_NOT_FOUND" && !params.known ? "NO_MODEL" : code;
}

/** What is missing for a run, and what it does first. */
export function Issues({ issues }: { issues: Issue[] }) {
  const { t } = useTranslation();
  if (issues.length === 0) return null;
  return (
    <ul className={styles.issues} aria-label={t("runs.form.issues")}>
      {issues.map((issue) => (
        <li key={`${issue.code} ${JSON.stringify(issue.params)}`} className={styles[issue.level]}>
          {issue.level === "error" ? <CircleAlert size={16} aria-hidden /> : <Info size={16} aria-hidden />}
          <div>
            <p>
              <Coded text={t(`runs.issue.${wordsOf(issue)}`, { ...issue.params, defaultValue: issue.message })} />{" "}
              {IN_SETTINGS.has(issue.code) && <Link href="/settings/models">{t("runs.form.toModels")}</Link>}
            </p>
            {issue.code === "IMAGE_NOT_BUILT" && <BuildImage image={issue.params.image ?? ""} recipe />}
          </div>
        </li>
      ))}
    </ul>
  );
}
