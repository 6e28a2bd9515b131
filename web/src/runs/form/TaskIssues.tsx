import { CircleAlert, Info } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import type { Schema } from "@/api/types";
import { BuildImage } from "@/sandboxes/BuildImage";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { translateServerText } from "@/ui/format/server-text";
import styles from "./form.module.css";

type Issue = Schema<"TaskIssueResponse">;

/** Issues of the server rather than of a field, shown beside the form with a fix. */
export const SERVER_ISSUES: ReadonlySet<string> = new Set([
  "MODEL_NOT_FOUND",
  "DEFAULT_MODEL",
  "PROVIDER_KEY_REFUSED",
  "PROVIDER_UNREACHED",
  "PROVIDER_FAILING",
  "IMAGE_NOT_BUILT",
]);
const SETTINGS_ISSUES = new Set(["MODEL_NOT_FOUND", "PROVIDER_KEY_REFUSED", "PROVIDER_UNREACHED", "PROVIDER_FAILING"]);

/** A server without any model needs another message than one that lacks the requested model. */
function issueText({ code, params }: Issue): string {
  return code === "MODEL_NOT_FOUND" && !params.known ? "NO_MODEL" : code;
}

/** The values of an issue's text; a provider's problem is a sentence of the server. */
function inLanguage({ params }: Issue): Record<string, string> {
  return params.problem ? { ...params, problem: translateServerText(params.problem) } : params;
}

/** Missing requirements of a run, and its preparations. */
export function TaskIssues({ issues }: { issues: Issue[] }) {
  const { t } = useTranslation();
  if (issues.length === 0) return null;
  return (
    <ul className={styles.issues} aria-label={t("runs.form.issues")}>
      {issues.map((issue) => (
        <li key={`${issue.code} ${JSON.stringify(issue.params)}`} className={styles[issue.level]}>
          {issue.level === "error" ? <CircleAlert size={16} aria-hidden /> : <Info size={16} aria-hidden />}
          <div>
            <p>
              <TextWithCode
                text={t(`runs.issue.${issueText(issue)}`, { ...inLanguage(issue), defaultValue: issue.message })}
              />{" "}
              {SETTINGS_ISSUES.has(issue.code) && <Link href="/settings/models">{t("runs.form.toModels")}</Link>}
            </p>
            {issue.code === "IMAGE_NOT_BUILT" && <BuildImage image={issue.params.image ?? ""} recipe />}
          </div>
        </li>
      ))}
    </ul>
  );
}
