import { Page } from "@/ui/Page";

export default function ExchangePage() {
  return <Page title="ExchangePage">{null}</Page>;
}
