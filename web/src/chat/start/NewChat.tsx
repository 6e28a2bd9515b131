import { Settings2 } from "lucide-react";
import { Suspense, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { useDemo } from "@/shell/demo";
import { part } from "@/shell/parts";
import { type ServerFacts, useServer } from "@/shell/server";
import { Button } from "@/ui/Button";
import { useTitle } from "@/ui/Page";
import { recall, remember } from "@/ui/remember";
import { Loaded } from "@/ui/states";
import { toastError } from "@/ui/toasts";
import { Composer, type Suggestion } from "../composer/Composer";
import type { Written } from "../composer/runtime";
import { EXAMPLES, filesOf, kindsFor } from "./examples";
import { type Setup, startWith } from "./setup";
import styles from "./start.module.css";

const SetupDialog = part(async () => ({ default: (await import("./SetupDialog")).SetupDialog }));

interface Props {
  onStart: (setup: Setup, written: Written) => Promise<void>;
}

/** A chat that has not begun: what is typed here begins it. */
export function NewChat({ onStart }: Props) {
  const { t } = useTranslation();
  const server = useServer();
  useTitle(t("chat.newChat"));
  return (
    <div className={styles.start}>
      <Loaded query={server}>{(facts) => <Start facts={facts} onStart={onStart} />}</Loaded>
    </div>
  );
}

function Start({ facts, onStart }: Props & { facts: ServerFacts }) {
  const { t } = useTranslation();
  const [chosen, setChosen] = useState(() => recall<Partial<Setup> | null>("chat.setup", null));
  const setup = useMemo(() => startWith(facts, chosen), [facts, chosen]);
  // Without what an example has chosen.
  const usual = startWith(facts, recall<Partial<Setup> | null>("chat.setup", null));
  const [open, setOpen] = useState(false);
  const [suggestion, setSuggestion] = useState<Suggestion>({ number: 0, text: "" });
  const [busy, setBusy] = useState(false);
  const change = (part: Partial<Setup>) => {
    const next = { ...setup, ...part };
    remember("chat.setup", next);
    setChosen(next);
  };
  const start = async (written: Written) => {
    setBusy(true);
    try {
      await onStart(setup, written);
    } catch (error) {
      setSuggestion({ number: suggestion.number + 1, text: written.text });
      toastError(error);
    } finally {
      setBusy(false);
    }
  };
  const nobody = facts.models.items.length + facts.models.patterns.length === 0;
  return (
    <div className={styles.inner}>
      <h1>{t("chat.whatToDo")}</h1>
      {!facts.models.real && (
        <p className={styles.note} role="note">
          {t(nobody ? "chat.noModel" : facts.models.demo ? "chat.onlyDemo" : "chat.onlyScripts")}{" "}
          <Link href="/settings/models">{t("chat.connectModel")}</Link>
        </p>
      )}
      {facts.models.real && !setup.model && facts.models.patterns.length > 0 && (
        <p className={styles.note} role="note">
          {t("chat.noneListed", { patterns: facts.models.patterns.join(", ") })}
        </p>
      )}
      <Composer
        draft="new"
        begins
        view={null}
        disabled={busy || !setup.model}
        placeholder={t("chat.askAnything")}
        onSend={start}
        suggestion={suggestion}
        options={
          <Button size="small" tone="quiet" icon={Settings2} onClick={() => setOpen(true)} className={styles.summary}>
            <span>
              {[setup.model || t("chat.chooseModel"), setup.kinds.join(" + ") || t("chat.noComputer")]
                .filter(Boolean)
                .join(" · ")}
            </span>
          </Button>
        }
      />
      <section aria-label={t("chat.examples")} className={styles.examples}>
        {facts.models.demo && <DemoCard />}
        {(facts.models.demo ? [] : EXAMPLES).map((name) => {
          const kinds = kindsFor(name, usual.kinds, facts.kinds);
          if (!kinds) return null;
          const missing = facts.kinds.find((kind) => kinds.includes(kind.name) && !kind.built);
          return (
            <button
              key={name}
              type="button"
              onClick={() => {
                // For this chat alone: what is usual stays as it was chosen.
                setChosen({ ...setup, kinds });
                setSuggestion({
                  number: suggestion.number + 1,
                  text: t(`chat.example.${name}.text`),
                  files: filesOf(name),
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
          <SetupDialog facts={facts} setup={setup} onChange={change} onClose={() => setOpen(false)} />
        </Suspense>
      )}
    </div>
  );
}

/** The demonstration, which is all that the script of a server without models can do. */
function DemoCard() {
  const { t } = useTranslation();
  const demo = useDemo();
  return (
    <button type="button" disabled={demo.isPending} onClick={() => demo.mutate(true)}>
      <strong>{t("welcome.demo.begin")}</strong>
      <span>{t("welcome.demo.honest")}</span>
    </button>
  );
}
