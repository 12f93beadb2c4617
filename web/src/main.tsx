// Entry point: load limits, models and sessions, connect, render.
import { render } from "preact";
import { request, ApiError } from "./api/http";
import type { ConfigView, ModelView } from "./api/types";
import { App } from "./screens/App";
import { config, connection, defaultModel, models, OPENED_ADDRESS, problem, sessionId, THEME_CHOICE, view } from "./state/app";
import { keepDrafts } from "./state/composer";
import { connect } from "./state/connection";
import { watchFolderTrust, watchTitle } from "./state/page_effects";
import { hasUnsent } from "./state/outbox";
import { checkOwner } from "./state/owner";
import { watchPlan } from "./state/plan";
import { keepTab } from "./state/tab";
import { loadSessions, onEnvelope, onSessionChange, prefetchHistory, refresh, report, route, sessionInAddress } from "./state/sessions";

async function loadSettings(): Promise<void> {
  const [limits, known] = await Promise.all([request<ConfigView>("/config"), request<{ models: ModelView[]; default: string }>("/models")]);
  config.value = limits;
  models.value = known.models;
  defaultModel.value = known.default;
}

async function begin(): Promise<void> {
  try {
    await Promise.all([loadSessions(), checkOwner()]);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.isOffline) {
      connection.value = "offline";
      setTimeout(() => void begin(), 1000);
    } else report(error);
    return;
  }
  connect({
    envelope: onEnvelope,
    session: onSessionChange,
    back: () => {
      if (problem.value?.isOffline) problem.value = null;
      void loadSessions().catch(report);
      void refresh();
    },
  });
  loadSettings().catch(report);
  if (localStorage.getItem(OPENED_ADDRESS)) (await import("./screens/deferred")).returnToAddress();
  if (!view.value) await route();
  if (hasUnsent()) (await import("./screens/deferred")).resendOutbox();
}

// The draft is restored before the server has answered, so that typing can start at once.
document.documentElement.style.colorScheme = localStorage.getItem(THEME_CHOICE) ?? "";
sessionId.value = sessionInAddress();
keepTab();
keepDrafts();
watchPlan();
watchTitle();
watchFolderTrust();
addEventListener("hashchange", () => void route());
// Offered by browsers on https and on localhost only.
if ("serviceWorker" in navigator) addEventListener("load", () => void navigator.serviceWorker.register("/assets/sw.js", { scope: "/" }));
if (sessionId.value) prefetchHistory(sessionId.value);
render(<App />, document.getElementById("app") as HTMLElement);
void begin();
