import { Page } from "@/ui/Page";

export default function Health() {
  return <Page title="Health">{null}</Page>;
}
