import { Page } from "@/ui/Page";

export default function NotFound() {
  return <Page title="NotFound">{null}</Page>;
}
