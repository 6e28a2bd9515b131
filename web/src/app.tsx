import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { type ReactNode, Suspense } from "react";
import { Redirect, Route, Switch } from "wouter";
import { ApiError } from "./api/client";
import { Gate } from "./shell/Gate";
import { part } from "./shell/parts";
import { Loading } from "./ui/states";
import { Toasts } from "./ui/toasts";

// Who is not signed in needs nothing of all this.
const Shell = part<{ children: ReactNode }>(async () => ({ default: (await import("./shell/Shell")).Shell }));
const Welcome = part(() => import("./welcome/Welcome"));
const Chats = part(() => import("./chat/Chats"));
const Tasks = part(() => import("./runs/Tasks"));
const NewRun = part(() => import("./runs/NewRun"));
const Runs = part(() => import("./runs/Runs"));
const RunPage = part(() => import("./runs/RunPage"));
const CompareRuns = part(() => import("./runs/CompareRuns"));
const Archive = part(() => import("./archive/Archive"));
const ExchangePage = part(() => import("./archive/ExchangePage"));
const ConversationsPage = part(() => import("./archive/ConversationsPage"));
const Sandboxes = part(() => import("./sandboxes/Sandboxes"));
const SandboxPage = part(() => import("./sandboxes/SandboxPage"));
const Wall = part(() => import("./computers/Wall"));
const Popout = part(() => import("./computers/Popout"));
const Usage = part(() => import("./usage/Usage"));
const Health = part(() => import("./usage/Health"));
const Settings = part(() => import("./settings/Settings"));
const NotFound = part(() => import("./shell/NotFound"));

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2_000,
      // Ask again where it may help: the server is away or busy, not where it said no.
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
      <Gate>
        <Switch>
          <Route path="/popout/:sandbox/:view">
            <Suspense fallback={<Loading />}>
              <Popout />
            </Suspense>
          </Route>
          <Route>
            <Suspense fallback={<Loading />}>
              <Shell>
                <Suspense fallback={<Loading />}>
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
                    <Route path="/screens" component={Wall} />
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
      </Gate>
      <Toasts />
    </QueryClientProvider>
  );
}
