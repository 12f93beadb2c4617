import { BranchIcon, ChevronIcon, GearIcon, LayersIcon, Logo, MenuIcon, SearchIcon } from "../parts/icons";
import { config, dialog, info, model, modelInfo, panel, sessionId, showsSessions, view } from "../state/app";
import { openPalette, toggle } from "../state/keys";
import { go } from "../state/sessions";
import { shortModel } from "../state/format";

export function TopBar() {
  const branches = view.value?.branches ?? 1;
  const isTextOnly = modelInfo.value?.capabilities.vision === false;
  return (
    <header class={`top${sessionId.value ? " in-session" : ""}`}>
      <button type="button" class="icon only-narrow" aria-label="Sessions" aria-expanded={showsSessions.value} onClick={() => (showsSessions.value = !showsSessions.value)}>
        <MenuIcon />
      </button>
      <button type="button" class="brand" aria-label="Loom, home" onClick={() => go("")}>
        <Logo />
        <span>loom</span>
      </button>
      {sessionId.value ? <h1 class="top-title clip">{info.value?.title || "Untitled"}</h1> : <span class="top-title" />}
      <div class="top-end">
        <button type="button" class="icon not-narrow" aria-label="Search" title="Search (Ctrl K)" onClick={openPalette}>
          <SearchIcon />
        </button>
        {sessionId.value && (
          <>
            <button type="button" class="chip" aria-pressed={panel.value === "branches"} title="Branches (t)" onClick={() => toggle("branches")}>
              <BranchIcon />
              <span class="wide-only">Branches</span>
              {branches > 1 && <span class="count">{branches}</span>}
            </button>
            <button type="button" class="chip" aria-pressed={panel.value === "inspector"} title="Context of the next request (i)" onClick={() => toggle("inspector")}>
              <LayersIcon />
              <span class="wide-only">Context</span>
            </button>
          </>
        )}
        <button type="button" class="chip model" aria-haspopup="dialog" title={`${model.value} (m)`} onClick={() => (dialog.value = "models")}>
          <span class={`dot${isTextOnly ? " text-only" : ""}`} />
          <span class="clip">{shortModel(model.value) || "model"}</span>
          {config.value?.offline && <span class="dim wide-only">offline</span>}
          <ChevronIcon />
        </button>
        <button type="button" class="icon" aria-label="Settings" onClick={() => (dialog.value = "settings")}>
          <GearIcon />
        </button>
      </div>
    </header>
  );
}
