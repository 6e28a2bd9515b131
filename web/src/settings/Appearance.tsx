import { useTranslation } from "react-i18next";
import { chooseLanguage, LANGUAGES, type Language } from "@/i18n";
import { chooseDensity, chooseTheme, DENSITIES, THEMES, useAppearance } from "@/shell/account/appearance";
import { setNotifications, useNotifications } from "@/shell/status/notifications";
import { Switch } from "@/ui/controls/Switch";
import { showErrorToast } from "@/ui/controls/toasts";
import styles from "./SettingsPage.module.css";

/** Theme, density and language of the console in this browser. */
export function AppearanceSettings() {
  const { t, i18n } = useTranslation();
  const { theme, density } = useAppearance();
  return (
    <>
      <h2>{t("settings.appearance.title")}</h2>
      <RadioChoices
        name="theme"
        legend={t("settings.appearance.theme")}
        value={theme}
        options={THEMES.map((value) => [value, t(`settings.appearance.themes.${value}`)])}
        onChange={chooseTheme}
      />
      <RadioChoices
        name="language"
        legend={t("settings.appearance.language")}
        value={i18n.language as Language}
        options={(Object.keys(LANGUAGES) as Language[]).map((value) => [value, LANGUAGES[value]])}
        onChange={(language) => void chooseLanguage(language).catch(showErrorToast)}
      />
      <RadioChoices
        name="density"
        legend={t("settings.appearance.density")}
        value={density}
        options={DENSITIES.map((value) => [value, t(`settings.appearance.densities.${value}`)])}
        onChange={chooseDensity}
      />
      <NotificationSettings />
      <p className={styles.soft}>{t("settings.appearance.about")}</p>
    </>
  );
}

/** Switch for browser notifications about approvals. */
function NotificationSettings() {
  const { t } = useTranslation();
  const { on, permission } = useNotifications();
  const blocked = permission === "denied" || permission === "unsupported";
  return (
    <fieldset className={styles.choices}>
      <legend>{t("settings.appearance.notifications")}</legend>
      <Switch
        label={t("settings.appearance.notify")}
        checked={on}
        onChange={(next) => void setNotifications(next).catch(showErrorToast)}
        disabled={blocked}
      />
      {blocked && <p className={styles.soft}>{t(`settings.appearance.notify_${permission}`)}</p>}
    </fieldset>
  );
}

interface RadioChoicesProps<Value extends string> {
  name: string;
  legend: string;
  value: Value;
  options: [Value, string][];
  onChange: (value: Value) => void;
}

function RadioChoices<Value extends string>({ name, legend, value, options, onChange }: RadioChoicesProps<Value>) {
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
