import { useId } from "react";
import { useTranslation } from "react-i18next";
import type { ImageBuildProgress as BuildProgress } from "@/api/session-events";
import { buildSteps } from "@/ui/format/build-steps";
import styles from "./ImageBuildProgress.module.css";

/** Build progress of the image that a sandbox waits for. */
export function ImageBuildProgress({ building }: { building: BuildProgress }) {
  const { t } = useTranslation();
  const label = useId();
  const { image, fraction } = building;
  const steps = buildSteps(building.step_number, building.step_count);
  const hasFraction = typeof fraction === "number";
  return (
    <span className={styles.building} title={building.step}>
      <span id={label}>
        {hasFraction
          ? t(`chat.doing.${steps ? "buildingStep" : "buildingFar"}`, {
              image,
              percent: Math.round(fraction * 100),
              ...steps,
            })
          : t("chat.doing.building", { image })}
      </span>
      <br />
      <progress value={hasFraction ? fraction : undefined} max={1} aria-labelledby={label} />
    </span>
  );
}
