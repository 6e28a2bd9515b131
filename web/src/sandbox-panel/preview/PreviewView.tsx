import { ExternalLink, PanelsTopLeft, RotateCw, X } from "lucide-react";
import { type FormEvent, useState } from "react";
import { useTranslation } from "react-i18next";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { CopyButton } from "@/ui/content/CodeBlock";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { Button, IconButton } from "@/ui/controls/Button";
import { Select, TextInput } from "@/ui/controls/forms";
import { RelativeTime } from "@/ui/format/formats";
import { EmptyState, ErrorState, LoadingBars } from "@/ui/layout/query-states";
import { useUrlChoice } from "../useUrlChoice";
import { defaultPort, frameSandbox, fullAddress, type Preview, parsePort, portChoices } from "./listening-ports";
import styles from "./preview.module.css";
import { useClosePreview, useExposePort, useListeningPorts, usePreviews } from "./useSandboxPreviews";

const OTHER_PORT = "other";
const MIN_TTL_SECONDS = 60;

/** Page that a program in the sandbox serves, with its address. */
export function PreviewView({ sandbox, active }: { sandbox: string; active: boolean }) {
  const { t } = useTranslation();
  const me = useCurrentUser().data;
  const mayOpen = hasScope(me, "sandboxes:write");
  const [chosenText, setChosen] = useUrlChoice("port", active, "");
  const [reloads, setReloads] = useState(0);
  const [typing, setTyping] = useState(false);
  const ports = useListeningPorts(sandbox, active);
  const previews = usePreviews(sandbox, active);
  const expose = useExposePort(sandbox);
  const close = useClosePreview(sandbox);
  if (previews.error && !previews.data)
    return <ErrorState error={previews.error} retry={() => void previews.refetch()} />;
  if (!previews.data || ports.isPending) return <LoadingBars />;
  const listening = ports.data ?? [];
  const port = parsePort(chosenText) ?? defaultPort(listening, previews.data);
  const preview = previews.data.find((each) => each.port === port);
  const choose = (next: number) => {
    setTyping(false);
    setChosen(String(next));
    if (mayOpen && !previews.data.some((each) => each.port === next)) expose.mutate({ port: next });
  };
  return (
    <section className={styles.preview} aria-label={t("portPreview.title")}>
      <div className={styles.bar}>
        {typing ? (
          <PortForm onChoose={choose} onCancel={() => setTyping(false)} />
        ) : (
          <Select
            aria-label={t("portPreview.port")}
            value={port === null ? "" : String(port)}
            onChange={(next) => (next === OTHER_PORT ? setTyping(true) : next && choose(Number(next)))}
            options={[
              ...(port === null ? [{ value: "", label: t("portPreview.port") }] : []),
              ...portChoices(listening, previews.data, port).map((each) => ({
                value: String(each.port),
                label: each.listening ? String(each.port) : t("portPreview.notListening", { port: each.port }),
              })),
              ...(mayOpen ? [{ value: OTHER_PORT, label: t("portPreview.other") }] : []),
            ]}
          />
        )}
        {preview && (
          <AddressBar
            preview={preview}
            onReload={() => setReloads(reloads + 1)}
            onClose={mayOpen ? () => close.mutate(preview.port) : null}
            onPublic={
              mayOpen
                ? (isPublic) => expose.mutate({ port: preview.port, public: isPublic, ttl: secondsLeft(preview) })
                : null
            }
          />
        )}
      </div>
      {port === null ? (
        <EmptyState icon={PanelsTopLeft} title={t("portPreview.none")}>
          <TextWithCode text={t("portPreview.noneHint")} />
        </EmptyState>
      ) : !preview ? (
        <EmptyState
          icon={PanelsTopLeft}
          title={t(listening.includes(port) ? "portPreview.isListening" : "portPreview.silent", { port })}
          action={
            mayOpen && (
              <Button tone="accent" busy={expose.isPending} onClick={() => expose.mutate({ port })}>
                {t("portPreview.open", { port })}
              </Button>
            )
          }
        >
          {t(mayOpen ? "portPreview.isListeningHint" : "portPreview.readOnly")}
        </EmptyState>
      ) : !listening.includes(port) ? (
        <EmptyState icon={PanelsTopLeft} title={t("portPreview.silent", { port })}>
          {t("portPreview.silentHint")}
        </EmptyState>
      ) : (
        <iframe
          key={`${preview.link} ${reloads}`}
          className={styles.frame}
          src={preview.link}
          title={t("portPreview.frame", { port })}
          sandbox={frameSandbox(preview.link)}
          referrerPolicy="no-referrer"
        />
      )}
    </section>
  );
}

function PortForm({ onChoose, onCancel }: { onChoose: (port: number) => void; onCancel: () => void }) {
  const { t } = useTranslation();
  const [text, setText] = useState("");
  const port = parsePort(text);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (port !== null) onChoose(port);
  };
  return (
    <form className={styles.port} onSubmit={submit} onKeyDown={(event) => event.key === "Escape" && onCancel()}>
      <TextInput
        aria-label={t("portPreview.otherPort")}
        inputMode="numeric"
        autoFocus
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <Button size="small" type="submit" disabled={port === null}>
        {t("portPreview.show")}
      </Button>
    </form>
  );
}

interface AddressBarProps {
  preview: Preview;
  onReload: () => void;
  onClose: (() => void) | null;
  onPublic: ((isPublic: boolean) => void) | null;
}

function AddressBar({ preview, onReload, onClose, onPublic }: AddressBarProps) {
  const { t } = useTranslation();
  const address = fullAddress(preview.link, window.location.href);
  return (
    <>
      <IconButton size="small" icon={RotateCw} label={t("portPreview.reload")} onClick={onReload} />
      <TextInput
        className={styles.address}
        readOnly
        aria-label={t("portPreview.address")}
        title={t("portPreview.untrusted")}
        value={address}
        onFocus={(event) => event.target.select()}
      />
      <CopyButton text={address} label={t("portPreview.copy")} />
      <IconButton
        size="small"
        icon={ExternalLink}
        label={t("portPreview.openTab")}
        onClick={() => window.open(address, "_blank", "noopener,noreferrer")}
      />
      {onPublic && (
        <Select
          aria-label={t("portPreview.access")}
          value={preview.public ? "public" : "link"}
          onChange={(next) => onPublic(next === "public")}
          options={[
            { value: "link", label: t("portPreview.accessLink") },
            { value: "public", label: t("portPreview.accessPublic") },
          ]}
        />
      )}
      <span className={styles.soft}>
        {t("portPreview.expires")} <RelativeTime at={preview.expiresAt} />
      </span>
      {onClose && <IconButton size="small" icon={X} label={t("portPreview.close")} onClick={onClose} />}
    </>
  );
}

function secondsLeft(preview: Preview): number {
  return Math.max(MIN_TTL_SECONDS, Math.round((Date.parse(preview.expiresAt) - Date.now()) / 1000));
}
