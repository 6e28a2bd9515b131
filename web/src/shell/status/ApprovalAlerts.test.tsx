import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, render } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { usePageTitle } from "@/ui/layout/Page";
import { ApprovalAlerts } from "./ApprovalAlerts";
import { useNotifications } from "./notifications";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

const approval = (created_at: string) => ({ id: created_at, session: "ses-1", created_at });

function TitledPage() {
  usePageTitle("Runs");
  return <ApprovalAlerts />;
}

/** Renders the console for a user with read access to chats; `sendApprovals` sends the next server message. */
function renderAlerts(hidden: boolean, on: boolean) {
  const notes: string[] = [];
  vi.stubGlobal(
    "Notification",
    class {
      static permission = "granted";
      constructor(title: string) {
        notes.push(title);
      }
      close() {}
    },
  );
  vi.spyOn(document, "hidden", "get").mockReturnValue(hidden);
  useNotifications.setState({ on, permission: "granted" });
  const queries = new QueryClient({ defaultOptions: { queries: { enabled: false } } });
  render(
    <QueryClientProvider client={queries}>
      <TitledPage />
    </QueryClientProvider>,
  );
  const sendApprovals = async (...times: string[]) => {
    await act(async () => {
      queries.setQueryData(["shell", "approvals"], { items: times.map(approval) });
      await new Promise((done) => setTimeout(done));
    });
  };
  return { notes, sendApprovals };
}

describe("a pending approval", () => {
  it("is in the title of every page until it is decided", async () => {
    const { sendApprovals } = renderAlerts(false, false);
    await sendApprovals("2026-01-01T00:00:01Z");
    expect(document.title).toBe("(1) Approval needed · Runs · Paddock");
    await sendApprovals();
    expect(document.title).toBe("Runs · Paddock");
  });

  it("is notified once, if enabled and the page is hidden", async () => {
    const { notes, sendApprovals } = renderAlerts(true, true);
    await sendApprovals("2026-01-01T00:00:01Z");
    expect(notes).toEqual([]);
    await sendApprovals("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z");
    await sendApprovals("2026-01-01T00:00:02Z");
    expect(notes).toEqual(["(2) Approvals needed"]);
  });

  it.each([
    [false, true],
    [true, false],
  ])("is told by nothing else where the page is hidden: %s, and it is on: %s", async (hidden, on) => {
    const { notes, sendApprovals } = renderAlerts(hidden, on);
    await sendApprovals();
    await sendApprovals("2026-01-01T00:00:02Z");
    expect(notes).toEqual([]);
  });
});
