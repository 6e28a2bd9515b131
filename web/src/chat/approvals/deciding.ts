/** Decisions of a person: what they are made of, and what happens until they count. */

import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/client";
import type { Approval } from "@/api/types";
import type { Decision } from "@/session/store";
import { toast, toastError } from "@/ui/toasts";
import { useChat } from "../context";

export type Choice =
  | { action: "approve"; always?: "call" | "tool" }
  | { action: "edit"; arguments: Record<string, unknown> }
  | { action: "reject"; reason?: string }
  | { action: "answer"; answer: string };

/** A decision as the server wants it. The digest says that it was about exactly these arguments. */
export function decisionOf(approval: Approval, choice: Choice): Decision {
  const decision: Decision = { approval: approval.id, digest: approval.digest, action: choice.action };
  if (choice.action === "approve" && choice.always) decision.always = choice.always;
  if (choice.action === "edit") decision.arguments = choice.arguments;
  if (choice.action === "reject" && choice.reason?.trim()) decision.reason = choice.reason.trim();
  if (choice.action === "answer") decision.answer = choice.answer;
  return decision;
}

/** Of those that wait, the ones that can just be approved. */
export function approvable(waiting: readonly Approval[]): Approval[] {
  return waiting.filter((each) => each.type === "call" && each.actions.includes("approve"));
}

/** What a person wrote as arguments; a message says what is wrong with it. */
export function parseArguments(text: string): { value: Record<string, unknown> } | { error: string } {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null || Array.isArray(value)) return { error: "object" };
    return { value: value as Record<string, unknown> };
  } catch (error) {
    return { error: error instanceof Error ? error.message : "JSON" };
  }
}

export type FieldKind = "text" | "number" | "switch" | "json";

export function fieldKind(value: unknown): FieldKind {
  if (typeof value === "string") return "text";
  if (typeof value === "number") return "number";
  return typeof value === "boolean" ? "switch" : "json";
}

/** Decide, and say kindly if somebody else was quicker. */
export function useDecide(): { busy: boolean; decide: (decisions: Decision[]) => Promise<boolean> } {
  const { t } = useTranslation();
  const chat = useChat();
  const queries = useQueryClient();
  const [busy, setBusy] = useState(false);
  const decide = async (decisions: Decision[]) => {
    setBusy(true);
    try {
      await chat.decide(decisions);
      return true;
    } catch (error) {
      if (error instanceof ApiError && error.status === 409) toast(t("chat.decidedElsewhere"));
      else toastError(error);
      return false;
    } finally {
      setBusy(false);
      // The title and the navigation say how many wait.
      void queries.invalidateQueries({ queryKey: ["shell", "approvals"] });
    }
  };
  return { busy, decide };
}
