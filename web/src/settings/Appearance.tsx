import { useTranslation } from "react-i18next";
import { choose, LANGUAGES, type Language } from "@/i18n";
import { setNotifications, useNotifications } from "@/shell/notifications";
import { chooseDensity, chooseTheme, DENSITIES, THEMES, useAppearance } from "@/shell/theme";
import { Switch } from "@/ui/Switch";
import { toastError } from "@/ui/toasts";
import styles from "./Settings.module.css";

/** How the console looks and speaks, in this browser. */
export function Appearance() {
  const { t, i18n } = useTranslation();
  const { theme, density } = useAppearance();
  return (
    <>
      <h2>{t("settings.appearance.title")}</h2>
      <Choices
        name="theme"
        legend={t("settings.appearance.theme")}
        value={theme}
        options={THEMES.map((value) => [value, t(`settings.appearance.themes.${value}`)])}
        onChange={chooseTheme}
      />
      <Choices
        name="language"
        legend={t("settings.appearance.language")}
        value={i18n.language as Language}
        options={(Object.keys(LANGUAGES) as Language[]).map((value) => [value, LANGUAGES[value]])}
        onChange={(language) => void choose(language).catch(toastError)}
      />
      <Choices
        name="density"
        legend={t("settings.appearance.density")}
        value={density}
        options={DENSITIES.map((value) => [value, t(`settings.appearance.densities.${value}`)])}
        onChange={chooseDensity}
      />
      <Notifications />
      <p className={styles.soft}>{t("settings.appearance.about")}</p>
    </>
  );
}

/** Whether the browser tells of approvals while the page is not seen. */
function Notifications() {
  const { t } = useTranslation();
  const { on, permission } = useNotifications();
  const blocked = permission === "denied" || permission === "unsupported";
  return (
    <fieldset className={styles.choices}>
      <legend>{t("settings.appearance.notifications")}</legend>
      <Switch
        label={t("settings.appearance.notify")}
        checked={on}
        onChange={(next) => void setNotifications(next).catch(toastError)}
        disabled={blocked}
      />
      {blocked && <p className={styles.soft}>{t(`settings.appearance.notify_${permission}`)}</p>}
    </fieldset>
  );
}

interface Props<Value extends string> {
  name: string;
  legend: string;
  value: Value;
  options: [Value, string][];
  onChange: (value: Value) => void;
}

function Choices<Value extends string>({ name, legend, value, options, onChange }: Props<Value>) {
  return (
    <fieldset className={styles.choices}>
      <legend>{legend}</legend>
      {options.map(([each, label]) => (
        <label key={each} className={styles.choice}>
          <input type="radio" name={name} checked={each === value} onChange={() => onChange(each)} />
          {label}
        </label>
      ))}
    </fieldset>
  );
}
