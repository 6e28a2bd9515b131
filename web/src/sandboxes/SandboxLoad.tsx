import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Sparkline } from "@/ui/content/Sparkline";
import { formatBytes } from "@/ui/format/formats";
import styles from "./SandboxesPage.module.css";
import { useSandboxMetrics } from "./sandbox-metrics";
import type { Sandbox } from "./sandbox-properties";

/** CPU and memory of the last minutes, polled only while visible. */
export function SandboxLoad({ sandbox, wide }: { sandbox: Sandbox; wide?: boolean }) {
  const { t } = useTranslation();
  const frame = useRef<HTMLDivElement>(null);
  const [isVisible, setIsVisible] = useState(false);
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const observer = new IntersectionObserver(([entry]) => setIsVisible(entry?.isIntersecting ?? false));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const running = sandbox.status.state === "Running";
  const { data } = useSandboxMetrics(sandbox.id, isVisible && running);
  const cpus = (data?.samples ?? []).map((sample) => sample.cpu).filter((value) => value !== null);
  const memories = (data?.samples ?? []).map((sample) => sample.memory).filter((value) => value !== null);
  const cpu = cpus.at(-1);
  const memory = memories.at(-1);
  const cpuText = cpu === undefined ? "–" : `${Math.round(cpu * 100)}%`;
  const memoryText = memory === undefined ? "–" : formatBytes(memory);
  const width = wide ? 64 : 40;
  return (
    <div ref={frame} className={wide ? styles.loadWide : styles.load}>
      <span>
        {cpus.length > 1 && (
          <Sparkline
            values={cpus}
            max={Math.max(data?.cpuLimit ?? 1, ...cpus)}
            width={width}
            label={t("sandboxes.cpu", { value: cpuText })}
          />
        )}
        <span title={t("sandboxes.cpu", { value: cpuText })}>
          {wide && `${t("sandboxes.cpuShort")} `}
          {cpuText}
        </span>
      </span>
      <span>
        {memories.length > 1 && (
          <Sparkline
            values={memories}
            max={Math.max(data?.memoryLimit ?? 1, ...memories)}
            width={width}
            label={t("sandboxes.memory", { value: memoryText })}
          />
        )}
        <span title={t("sandboxes.memory", { value: memoryText })}>
          {wide && `${t("sandboxes.memoryShort")} `}
          {memoryText}
          {wide && data?.memoryLimit ? ` / ${formatBytes(data.memoryLimit)}` : ""}
        </span>
      </span>
    </div>
  );
}
