import { Page } from "@/ui/Page";

export default function Popout() {
  return <Page title="Popout">{null}</Page>;
}
