import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { type ComponentType, type ReactNode, Suspense } from "react";
import { Redirect, Route, Switch } from "wouter";
import { ApiError } from "./api/client";
import { loadAllWords } from "./i18n";
import { Gate } from "./shell/Gate";
import { part } from "./shell/parts";
import { Loading } from "./ui/states";
import { Toasts } from "./ui/toasts";

/** A page whose words are not among the first. */
function later(load: () => Promise<{ default: ComponentType }>) {
  return part(async () => (await Promise.all([load(), loadAllWords()]))[0]);
}

// Who is not signed in needs nothing of all this.
const Shell = part<{ children: ReactNode }>(async () => ({ default: (await import("./shell/Shell")).Shell }));
const Welcome = part(() => import("./welcome/Welcome"));
const Chats = part(() => import("./chat/Chats"));
const Tasks = later(() => import("./runs/Tasks"));
const NewRun = later(() => import("./runs/NewRun"));
const Runs = later(() => import("./runs/Runs"));
const RunPage = later(() => import("./runs/RunPage"));
const CompareRuns = later(() => import("./runs/CompareRuns"));
const Archive = later(() => import("./archive/Archive"));
const ExchangePage = later(() => import("./archive/ExchangePage"));
const ConversationsPage = later(() => import("./archive/ConversationsPage"));
const Sandboxes = part(() => import("./sandboxes/Sandboxes"));
const SandboxPage = part(() => import("./sandboxes/SandboxPage"));
const Wall = part(() => import("./computers/Wall"));
const Popout = part(() => import("./computers/Popout"));
const Usage = later(() => import("./usage/Usage"));
const Health = later(() => import("./usage/Health"));
const Settings = later(() => import("./settings/Settings"));
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
