// Starts the page: asks for what it needs, connects, draws.
import { render } from "preact";
import { ask, Refused } from "./api/http";
import type { ConfigView, ModelView, SampleView } from "./api/shapes";
import { App } from "./screens/App";
import { config, defaultModel, models, samples, sessionId, view } from "./state/app";
import { keepDrafts } from "./state/composer";
import { connect } from "./state/connection";
import { watchPlan } from "./state/plan";
import { loadSessions, onEnvelope, onSessionChange, refresh, report, route, sessionInAddress } from "./state/sessions";
import { deliverLeft } from "./state/turn";
import { loadTheme } from "./state/theme";

async function loadFacts(): Promise<void> {
  const [limits, known, shown] = await Promise.all([
    ask<ConfigView>("/config"),
    ask<{ models: ModelView[]; default: string }>("/models"),
    ask<{ samples: SampleView[] }>("/samples"),
  ]);
  config.value = limits;
  models.value = known.models;
  defaultModel.value = known.default;
  samples.value = shown.samples;
}

async function begin(): Promise<void> {
  try {
    await loadSessions();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.isAway) setTimeout(() => void begin(), 1000);
    else report(error);
    return;
  }
  connect({
    envelope: onEnvelope,
    session: onSessionChange,
    back: () => {
      void loadSessions().catch(report);
      void refresh();
    },
  });
  loadFacts().catch(report);
  if (!view.value) await route();
  deliverLeft();
}

// Whoever types at once must find nothing in the way: the draft is there before the daemon has answered.
loadTheme();
sessionId.value = sessionInAddress();
keepDrafts();
watchPlan();
addEventListener("hashchange", () => void route());
render(<App />, document.getElementById("app") as HTMLElement);
void begin();
