import { Page } from "@/ui/Page";

export default function NewRun() {
  return <Page title="NewRun">{null}</Page>;
}
