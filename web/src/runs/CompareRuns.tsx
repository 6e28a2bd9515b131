import { Page } from "@/ui/Page";

export default function CompareRuns() {
  return <Page title="CompareRuns">{null}</Page>;
}
