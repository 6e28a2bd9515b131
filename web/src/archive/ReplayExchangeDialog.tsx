import { MessageSquare } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { useLocation } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { useServerFacts } from "@/shell/status/server-facts";
import { CodeBlock } from "@/ui/content/CodeBlock";
import { Button } from "@/ui/controls/Button";
import { Dialog } from "@/ui/controls/Dialog";
import { Field, Select, TextArea } from "@/ui/controls/forms";
import { showErrorToast } from "@/ui/controls/toasts";
import type { ExchangeDetail } from "./api";
import styles from "./archive.module.css";
import { lastUserText } from "./message-turns";

interface Props {
  exchange: ExchangeDetail;
  open: boolean;
  onClose: () => void;
}

/** Replay an exchange: as a recording that answers without a model, or sent again in a chat. */
export function ReplayExchangeDialog({ exchange, open, onClose }: Props) {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const me = useCurrentUser();
  const server = useServerFacts();
  const [text, setText] = useState(() => lastUserText(exchange.messages ?? []));
  const [model, setModel] = useState("");
  const [busy, setBusy] = useState(false);
  const models = server.data?.models.items.map((each) => each.name).filter((name) => !name.includes("*")) ?? [];
  const filterOption = exchange.run
    ? `--run ${exchange.run}`
    : exchange.sandbox
      ? `--sandbox ${exchange.sandbox}`
      : exchange.session
        ? `--session ${exchange.session}`
        : null;
  const commands = [
    `# ${t("archive.replay.one")}`,
    `paddock llm record tape.jsonl --id ${exchange.number}`,
    ...(filterOption ? [`# ${t("archive.replay.all")}`, `paddock llm record tape.jsonl ${filterOption}`] : []),
    `# ${t("archive.replay.run")}`,
    "paddock llm replay tape.jsonl -- pytest -q",
  ];
  const startChat = async () => {
    setBusy(true);
    try {
      const title = text.trim().split("\n", 1)[0]?.slice(0, 80);
      const session = await api.post<Schema<"Session">>("/v1/sessions", { title, ...(model ? { model } : {}) });
      await api.post(`/v1/sessions/${session.id}/messages`, { text });
      go(`/chats/${session.id}`);
    } catch (error) {
      showErrorToast(error);
      setBusy(false);
    }
  };
  return (
    <Dialog open={open} onClose={onClose} title={t("archive.replay.title")} wide>
      <p>{t("archive.replay.about")}</p>
      <CodeBlock text={`${commands.join("\n")}\n`} label={t("archive.replay.commands")} wrap />
      <CodeBlock
        text={`llm:\n  providers:\n    tape: {kind: replay, file: tape.jsonl}\n  models:\n    taped: tape\n`}
        label="paddock.yaml"
        fileName="paddock.yaml"
      />
      {hasScope(me.data, "sessions:write") && text !== "" && (
        <section className={styles.again} aria-label={t("archive.replay.chat")}>
          <h3>{t("archive.replay.chat")}</h3>
          <Field label={t("archive.replay.message")} hint={t("archive.replay.chatHint")}>
            <TextArea rows={5} value={text} onChange={(event) => setText(event.target.value)} />
          </Field>
          <Field label={t("archive.filter.model")}>
            <Select
              value={model}
              onChange={setModel}
              options={[
                { value: "", label: t("archive.replay.usual") },
                ...models.map((name) => ({ value: name, label: name })),
              ]}
            />
          </Field>
          <div>
            <Button
              tone="accent"
              icon={MessageSquare}
              busy={busy}
              disabled={!text.trim()}
              onClick={() => void startChat()}
            >
              {t("archive.replay.begin")}
            </Button>
          </div>
        </section>
      )}
    </Dialog>
  );
}
