import { Page } from "@/ui/Page";

export default function Wall() {
  return <Page title="Wall">{null}</Page>;
}
