import { Page } from "@/ui/Page";

export default function Archive() {
  return <Page title="Archive">{null}</Page>;
}
