import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { Redirect, Route, Switch } from "wouter";
import { ApiError } from "./api/client";
import { Gate } from "./shell/Gate";
import { Shell } from "./shell/Shell";
import { Loading } from "./ui/states";
import { Toasts } from "./ui/toasts";

const Welcome = lazy(() => import("./welcome/Welcome"));
const Chats = lazy(() => import("./chat/Chats"));
const Tasks = lazy(() => import("./runs/Tasks"));
const NewRun = lazy(() => import("./runs/NewRun"));
const Runs = lazy(() => import("./runs/Runs"));
const RunPage = lazy(() => import("./runs/RunPage"));
const CompareRuns = lazy(() => import("./runs/CompareRuns"));
const Archive = lazy(() => import("./archive/Archive"));
const ExchangePage = lazy(() => import("./archive/ExchangePage"));
const ConversationsPage = lazy(() => import("./archive/ConversationsPage"));
const Sandboxes = lazy(() => import("./sandboxes/Sandboxes"));
const SandboxPage = lazy(() => import("./sandboxes/SandboxPage"));
const Wall = lazy(() => import("./computers/Wall"));
const Popout = lazy(() => import("./computers/Popout"));
const Usage = lazy(() => import("./usage/Usage"));
const Health = lazy(() => import("./usage/Health"));
const Settings = lazy(() => import("./settings/Settings"));
const NotFound = lazy(() => import("./shell/NotFound"));

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
                  <Route path="/health" component={Health} />
                  <Route path="/settings">
                    <Redirect to="/settings/models" replace />
                  </Route>
                  <Route path="/settings/:page" component={Settings} />
                  <Route component={NotFound} />
                </Switch>
              </Suspense>
            </Shell>
          </Route>
        </Switch>
      </Gate>
      <Toasts />
    </QueryClientProvider>
  );
}
