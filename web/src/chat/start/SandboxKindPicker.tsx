import { useTranslation } from "react-i18next";
import type { Schema } from "@/api/types";
import { Badge } from "@/ui/controls/Badge";
import styles from "./start.module.css";

interface Props {
  kinds: readonly Schema<"KindResponse">[];
  chosen: readonly string[];
  onChange: (chosen: string[]) => void;
}

/** Kinds of sandbox that the agent may use, with a description of each. */
export function SandboxKindPicker({ kinds, chosen, onChange }: Props) {
  const { t } = useTranslation();
  return (
    <fieldset className={styles.kinds}>
      <legend>{t("chat.sandboxes")}</legend>
      {kinds.map((kind) => (
        <label key={kind.name} className={styles.kind}>
          <input
            type="checkbox"
            checked={chosen.includes(kind.name)}
            onChange={(event) =>
              onChange(event.target.checked ? [...chosen, kind.name] : chosen.filter((each) => each !== kind.name))
            }
          />
          <span>
            <span className={styles.kindName}>
              {t(`chat.kindTitle.${kind.title}`, kind.title)}
              {!kind.built && <Badge tone="warning">{t("chat.notBuilt")}</Badge>}
            </span>
            <span className={styles.soft}>
              {t(`chat.kindAbout.${kind.name}`, kind.description)}
              {!kind.built &&
                ` ${t(kind.recipe ? "chat.notBuiltHint" : "chat.notBuiltCommand", { image: kind.image })}`}
            </span>
          </span>
        </label>
      ))}
    </fieldset>
  );
}
