/** Decisions on approvals: request bodies and submission. */

import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/client";
import type { Approval } from "@/api/types";
import type { ApprovalDecision } from "@/session/store";
import { showErrorToast, showToast } from "@/ui/controls/toasts";
import { useChatContext } from "../chat-context";

export type ApprovalChoice =
  | { action: "approve"; always?: "call" | "tool" }
  | { action: "edit"; arguments: Record<string, unknown> }
  | { action: "reject"; reason?: string }
  | { action: "answer"; answer: string };

/** Request body of a decision. The digest binds it to the arguments that were shown. */
export function buildApprovalDecision(approval: Approval, choice: ApprovalChoice): ApprovalDecision {
  const decision: ApprovalDecision = { approval: approval.id, digest: approval.digest, action: choice.action };
  if (choice.action === "approve" && choice.always) decision.always = choice.always;
  if (choice.action === "edit") decision.arguments = choice.arguments;
  if (choice.action === "reject" && choice.reason?.trim()) decision.reason = choice.reason.trim();
  if (choice.action === "answer") decision.answer = choice.answer;
  return decision;
}

/** Pending approvals that can be approved without further input. */
export function approvableApprovals(waiting: readonly Approval[]): Approval[] {
  return waiting.filter((each) => each.type === "call" && each.actions.includes("approve"));
}

/** Parse arguments typed by a person, or return an error. */
export function parseCallArguments(text: string): { value: Record<string, unknown> } | { error: string } {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null || Array.isArray(value)) return { error: "object" };
    return { value: value as Record<string, unknown> };
  } catch (error) {
    return { error: error instanceof Error ? error.message : "JSON" };
  }
}

export type ArgumentFieldKind = "text" | "number" | "switch" | "json";

export function argumentFieldKind(value: unknown): ArgumentFieldKind {
  if (typeof value === "string") return "text";
  if (typeof value === "number") return "number";
  return typeof value === "boolean" ? "switch" : "json";
}

/** Submit decisions, with a message if another person decided first. */
export function useDecideApprovals(): { busy: boolean; decide: (decisions: ApprovalDecision[]) => Promise<boolean> } {
  const { t } = useTranslation();
  const chat = useChatContext();
  const queries = useQueryClient();
  const [busy, setBusy] = useState(false);
  const decide = async (decisions: ApprovalDecision[]) => {
    setBusy(true);
    try {
      await chat.decide(decisions);
      return true;
    } catch (error) {
      if (error instanceof ApiError && error.status === 409) showToast(t("chat.decidedElsewhere"));
      else showErrorToast(error);
      return false;
    } finally {
      setBusy(false);
      // The page title and the navigation show the number of pending approvals.
      void queries.invalidateQueries({ queryKey: ["shell", "approvals"] });
    }
  };
  return { busy, decide };
}
