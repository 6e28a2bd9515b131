import { Page } from "@/ui/Page";

export default function Runs() {
  return <Page title="Runs">{null}</Page>;
}
