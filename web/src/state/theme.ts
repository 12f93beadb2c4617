// Light, dark or system appearance, saved in this browser.
import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
export const THEMES: Theme[] = ["system", "light", "dark"];
export const theme = signal<Theme>("system");

export function loadTheme(): void {
  const kept = localStorage.getItem("loom.theme");
  setTheme(kept === "light" || kept === "dark" ? kept : "system");
}

export function setTheme(chosen: Theme): void {
  theme.value = chosen;
  document.documentElement.style.colorScheme = chosen === "system" ? "" : chosen;
  if (chosen === "system") localStorage.removeItem("loom.theme");
  else localStorage.setItem("loom.theme", chosen);
}

export function cycleTheme(): void {
  setTheme(THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? "system");
}
