import { Page } from "@/ui/Page";

export default function Chats() {
  return <Page title="Chats">{null}</Page>;
}
