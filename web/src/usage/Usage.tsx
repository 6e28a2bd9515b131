import { Page } from "@/ui/Page";

export default function Usage() {
  return <Page title="Usage">{null}</Page>;
}
