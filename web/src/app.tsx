import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { type ComponentType, type ReactNode, Suspense } from "react";
import { Redirect, Route, Switch } from "wouter";
import { ApiError } from "./api/client";
import { loadAllTexts } from "./i18n";
import { SignInGate } from "./shell/account/SignInGate";
import { lazyComponent } from "./shell/navigation/lazy-component";
import { Toasts } from "./ui/controls/toasts";
import { LoadingBars } from "./ui/layout/query-states";

/** Lazy page that loads the texts of the other pages first. */
function lazyPage(load: () => Promise<{ default: ComponentType }>) {
  return lazyComponent(async () => (await Promise.all([load(), loadAllTexts()]))[0]);
}

// The sign-in page needs none of the following.
const Shell = lazyComponent<{ children: ReactNode }>(async () => ({ default: (await import("./shell/Shell")).Shell }));
const Welcome = lazyComponent(() => import("./welcome/WelcomePage"));
const Chats = lazyComponent(() => import("./chat/ChatsPage"));
const Tasks = lazyPage(() => import("./runs/TasksPage"));
const NewRun = lazyPage(() => import("./runs/NewRunPage"));
const Runs = lazyPage(() => import("./runs/RunsPage"));
const RunPage = lazyPage(() => import("./runs/RunPage"));
const CompareRuns = lazyPage(() => import("./runs/CompareRuns"));
const Archive = lazyPage(() => import("./archive/ArchivePage"));
const ExchangePage = lazyPage(() => import("./archive/ExchangePage"));
const ConversationsPage = lazyPage(() => import("./archive/ConversationsPage"));
const Sandboxes = lazyPage(() => import("./sandboxes/SandboxesPage"));
const SandboxPage = lazyPage(() => import("./sandboxes/SandboxPage"));
const ScreenGrid = lazyPage(() => import("./sandbox-panel/ScreenGrid"));
const Popout = lazyPage(() => import("./sandbox-panel/PopoutWindow"));
const Tools = lazyPage(() => import("./mcp/ToolsPage"));
const Usage = lazyPage(() => import("./usage/UsagePage"));
const Health = lazyPage(() => import("./usage/HealthPage"));
const Settings = lazyPage(() => import("./settings/SettingsPage"));
const NotFound = lazyComponent(() => import("./shell/navigation/NotFound"));

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2_000,
      // Retry only where it may help: the server is offline or busy, not when it refused.
      retry: (failures, error) =>
        failures < 3 && (!(error instanceof ApiError) || error.unreachable || error.status >= 500),
      networkMode: "always",
    },
    mutations: { networkMode: "always" },
  },
});

export function App() {
  return (
    <QueryClientProvider client={queries}>
      <SignInGate>
        <Switch>
          <Route path="/popout/:sandbox/:view">
            <Suspense fallback={<LoadingBars />}>
              <Popout />
            </Suspense>
          </Route>
          <Route>
            <Suspense fallback={<LoadingBars />}>
              <Shell>
                <Suspense fallback={<LoadingBars />}>
                  <Switch>
                    <Route path="/" component={Welcome} />
                    <Route path="/chats/:id?" component={Chats} />
                    <Route path="/tasks" component={Tasks} />
                    <Route path="/tasks/new" component={NewRun} />
                    <Route path="/runs" component={Runs} />
                    <Route path="/runs/compare/:group" component={CompareRuns} />
                    <Route path="/runs/:id" component={RunPage} />
                    <Route path="/archive" component={Archive} />
                    <Route path="/archive/sandboxes/:id" component={ConversationsPage} />
                    <Route path="/archive/:id" component={ExchangePage} />
                    <Route path="/sandboxes" component={Sandboxes} />
                    <Route path="/sandboxes/:id/:view?" component={SandboxPage} />
                    <Route path="/screens" component={ScreenGrid} />
                    <Route path="/tools/:server?" component={Tools} />
                    <Route path="/usage" component={Usage} />
                    <Route path="/status" component={Health} />
                    <Route path="/health">
                      <Redirect to="/status" replace />
                    </Route>
                    <Route path="/settings">
                      <Redirect to="/settings/models" replace />
                    </Route>
                    <Route path="/settings/:page" component={Settings} />
                    <Route component={NotFound} />
                  </Switch>
                </Suspense>
              </Shell>
            </Suspense>
          </Route>
        </Switch>
      </SignInGate>
      <Toasts />
    </QueryClientProvider>
  );
}
