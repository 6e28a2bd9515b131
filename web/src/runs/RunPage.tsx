import { Page } from "@/ui/Page";

export default function RunPage() {
  return <Page title="RunPage">{null}</Page>;
}
