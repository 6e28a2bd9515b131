import { useMutation } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { useLocation } from "wouter";
import { api } from "@/api/client";
import { showErrorToast } from "@/ui/controls/toasts";

/** Open the demo chat; with `true`, start a new one. */
export function useOpenDemoChat() {
  const { i18n } = useTranslation();
  const [, navigate] = useLocation();
  return useMutation({
    mutationFn: (again: boolean) =>
      api.post<{ session: string }>("/v1/demo", { language: i18n.language === "zh" ? "zh" : "en", begin: true, again }),
    onSuccess: ({ session }) => navigate(`/chats/${encodeURIComponent(session)}`),
    onError: showErrorToast,
  });
}
