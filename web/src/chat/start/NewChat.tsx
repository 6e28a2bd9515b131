import { Settings2 } from "lucide-react";
import { Suspense, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { ApiError } from "@/api/client";
import { loadAllTexts } from "@/i18n";
import { acceptsAnyModelName } from "@/shell/models/model-patterns";
import { refusedKeyOfModel } from "@/shell/models/refused-key";
import { lazyComponent } from "@/shell/navigation/lazy-component";
import { type ServerFacts, useServerFacts } from "@/shell/status/server-facts";
import { useOpenDemoChat } from "@/shell/status/useOpenDemoChat";
import { Button } from "@/ui/controls/Button";
import { showErrorToast } from "@/ui/controls/toasts";
import { readStoredValue, writeStoredValue } from "@/ui/hooks/browser-storage";
import { usePageTitle } from "@/ui/layout/Page";
import { QueryResult } from "@/ui/layout/query-states";
import { Composer, type PromptSuggestion } from "../composer/Composer";
import type { ComposedMessage } from "../composer/composer-runtime";
import { type ChatSetup, initialChatSetup } from "./chat-setup";
import { EXAMPLE_PROMPTS, examplePromptFiles, kindsForExamplePrompt } from "./example-prompts";
import styles from "./start.module.css";

const ChatSetupDialog = lazyComponent(async () => {
  const [{ ChatSetupDialog: loaded }] = await Promise.all([import("./ChatSetupDialog"), loadAllTexts()]);
  return { default: loaded };
});

interface Props {
  onStart: (setup: ChatSetup, composed: ComposedMessage) => Promise<void>;
}

/** Start page of a new chat. */
export function NewChat({ onStart }: Props) {
  const { t } = useTranslation();
  const server = useServerFacts();
  usePageTitle(t("chat.newChat"));
  return (
    <div className={styles.start}>
      <QueryResult query={server}>{(facts) => <NewChatForm facts={facts} onStart={onStart} />}</QueryResult>
    </div>
  );
}

function NewChatForm({ facts, onStart }: Props & { facts: ServerFacts }) {
  const { t } = useTranslation();
  const [chosen, setChosen] = useState(() => readStoredValue<Partial<ChatSetup> | null>("chat.setup", null));
  const setup = useMemo(() => initialChatSetup(facts, chosen), [facts, chosen]);
  // Setup without the changes that an example made.
  const defaultSetup = initialChatSetup(facts, readStoredValue<Partial<ChatSetup> | null>("chat.setup", null));
  const [open, setOpen] = useState(false);
  const [suggestion, setSuggestion] = useState<PromptSuggestion>({ number: 0, text: "" });
  const [busy, setBusy] = useState(false);
  const [networkError, setNetworkError] = useState<string | null>(null);
  const change = (part: Partial<ChatSetup>) => {
    const next = { ...setup, ...part };
    writeStoredValue("chat.setup", next);
    setChosen(next);
    setNetworkError(null);
  };
  const start = async (composed: ComposedMessage) => {
    setBusy(true);
    try {
      await onStart(setup, composed);
    } catch (error) {
      setSuggestion({ number: suggestion.number + 1, text: composed.text });
      const refusal = setup.network && (await networkRefusal(error));
      setNetworkError(refusal);
      if (refusal) setOpen(true);
      else showErrorToast(error);
    } finally {
      setBusy(false);
    }
  };
  const networkText = setup.network && t("chat.networkIs", { network: t(`chat.networks.${setup.network.choice}`) });
  const refused = refusedKeyOfModel(facts.models, setup.model);
  const noModels = facts.models.items.length + facts.models.patterns.length === 0;
  return (
    <div className={styles.inner}>
      <h1>{t("chat.whatToDo")}</h1>
      {!facts.models.real && (
        <p className={styles.note} role="note">
          {t(noModels ? "chat.noModel" : facts.models.demo ? "chat.onlyDemo" : "chat.onlyScripts")}{" "}
          <Link href="/settings/models">{t("chat.connectModel")}</Link>
        </p>
      )}
      {refused && (
        <p className={styles.note} role="note">
          {t("shell.provider.keyRefusedBy", { ...refused })}{" "}
          <Link href="/settings/models">{t("chat.toModelSettings")}</Link>
        </p>
      )}
      {facts.models.real && !setup.model && facts.models.patterns.length > 0 && (
        <p className={styles.note} role="note">
          {acceptsAnyModelName(facts.models.patterns)
            ? t("chat.noneListedAny")
            : t("chat.noneListed", { patterns: facts.models.patterns.join(", ") })}
        </p>
      )}
      <Composer
        draft="new"
        focusOnMount
        view={null}
        disabled={busy || !setup.model}
        placeholder={t("chat.askAnything")}
        onSend={start}
        suggestion={suggestion}
        options={
          <Button size="small" tone="quiet" icon={Settings2} onClick={() => setOpen(true)} className={styles.summary}>
            <span>
              {[setup.model || t("chat.chooseModel"), setup.kinds.join(" + ") || t("chat.noSandbox"), networkText]
                .filter(Boolean)
                .join(" · ")}
            </span>
          </Button>
        }
      />
      <section aria-label={t("chat.examples")} className={styles.examples}>
        {facts.models.demo && <DemoCard />}
        {(facts.models.demo ? [] : EXAMPLE_PROMPTS).map((name) => {
          const kinds = kindsForExamplePrompt(name, defaultSetup.kinds, facts.kinds);
          if (!kinds) return null;
          const missing = facts.kinds.find((kind) => kinds.includes(kind.name) && !kind.built);
          return (
            <button
              key={name}
              type="button"
              onClick={() => {
                // For this chat only: the stored defaults stay as they are.
                setChosen({ ...setup, kinds });
                setSuggestion({
                  number: suggestion.number + 1,
                  text: t(`chat.example.${name}.text`),
                  files: examplePromptFiles(name),
                });
              }}
            >
              <strong>{t(`chat.example.${name}.title`)}</strong>
              <span>{t(`chat.example.${name}.text`)}</span>
              {missing && <small>{t("chat.exampleBuilds", { image: missing.image })}</small>}
            </button>
          );
        })}
      </section>
      {open && (
        <Suspense fallback={null}>
          <ChatSetupDialog
            facts={facts}
            setup={setup}
            onChange={change}
            onClose={() => setOpen(false)}
            networkError={networkError}
          />
        </Suspense>
      )}
    </div>
  );
}

/** Why the server refused the network policy of a new chat; null for other errors. */
async function networkRefusal(error: unknown): Promise<string | null> {
  if (!(error instanceof ApiError) || error.unreachable) return null;
  const { isNetworkError, networkErrorText } = await import("@/sandbox-panel/network/network-policy");
  return isNetworkError(error) ? networkErrorText(error) : null;
}

/** Card that starts the demo, the only thing a server without models can run. */
function DemoCard() {
  const { t } = useTranslation();
  const demo = useOpenDemoChat();
  return (
    <button type="button" disabled={demo.isPending} onClick={() => demo.mutate(true)}>
      <strong>{t("welcome.demo.begin")}</strong>
      <span>{t("welcome.demo.honest")}</span>
    </button>
  );
}
