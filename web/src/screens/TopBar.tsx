import { BranchIcon, ChevronIcon, SlidersIcon, LayersIcon, Mark, MenuIcon, SearchIcon } from "../parts/icons";
import { config, dialog, info, model, modelInfo, panel, sessionId, showsSessions, turns } from "../state/app";
import { toggle } from "../state/keys";
import { go } from "../state/sessions";
import { shortModel } from "../state/words";

export function TopBar() {
  const branches = new Set(turns.value.flatMap((turn) => [turn.user, turn.forked].flatMap((one) => (one?.siblings && one.siblings.length > 1 ? one.siblings : []))));
  const isBlind = modelInfo.value?.capabilities.vision === false;
  return (
    <header class={`top${sessionId.value ? " in-session" : ""}`}>
      <button type="button" class="icon only-narrow" aria-label="Sessions" aria-expanded={showsSessions.value} onClick={() => (showsSessions.value = !showsSessions.value)}>
        <MenuIcon />
      </button>
      <button type="button" class="brand" aria-label="Loom, start" onClick={() => go("")}>
        <Mark />
        <span>loom</span>
      </button>
      {sessionId.value ? <h1 class="top-title clip">{info.value?.title || "Untitled"}</h1> : <span class="top-title" />}
      <div class="top-end">
        <button type="button" class="icon not-narrow" aria-label="Search" title="Search (Ctrl K)" onClick={() => (dialog.value = "palette")}>
          <SearchIcon />
        </button>
        {sessionId.value && (
          <>
            <button type="button" class="chip" aria-pressed={panel.value === "forest"} title="Branches (t)" onClick={() => toggle("forest")}>
              <BranchIcon />
              <span class="wide-only">Branches</span>
              {branches.size > 1 && <span class="count">{branches.size}</span>}
            </button>
            <button type="button" class="chip" aria-pressed={panel.value === "inspector"} title="What the model will get (i)" onClick={() => toggle("inspector")}>
              <LayersIcon />
              <span class="wide-only">Context</span>
            </button>
          </>
        )}
        <button type="button" class="chip model" aria-haspopup="dialog" title={`${model.value} (m)`} onClick={() => (dialog.value = "models")}>
          <span class={`dot${isBlind ? " blind" : ""}`} />
          <span class="clip">{shortModel(model.value) || "model"}</span>
          {config.value?.offline && <span class="dim wide-only">offline</span>}
          <ChevronIcon />
        </button>
        <button type="button" class="icon" aria-label="Settings" onClick={() => (dialog.value = "settings")}>
          <SlidersIcon />
        </button>
      </div>
    </header>
  );
}
