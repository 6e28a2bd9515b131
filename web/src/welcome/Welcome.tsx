import { Page } from "@/ui/Page";

export default function Welcome() {
  return <Page title="Welcome">{null}</Page>;
}
