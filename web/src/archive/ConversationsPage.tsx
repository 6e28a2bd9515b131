import { Page } from "@/ui/Page";

export default function ConversationsPage() {
  return <Page title="ConversationsPage">{null}</Page>;
}
