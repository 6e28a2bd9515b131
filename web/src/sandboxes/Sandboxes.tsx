import { Page } from "@/ui/Page";

export default function Sandboxes() {
  return <Page title="Sandboxes">{null}</Page>;
}
