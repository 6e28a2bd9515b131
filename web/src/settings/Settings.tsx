import { Page } from "@/ui/Page";

export default function Settings() {
  return <Page title="Settings">{null}</Page>;
}
