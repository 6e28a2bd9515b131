import { Page } from "@/ui/Page";

export default function SandboxPage() {
  return <Page title="SandboxPage">{null}</Page>;
}
