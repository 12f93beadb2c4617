// Light, dark or system appearance, saved in this browser.
import { signal } from "@preact/signals";
import { THEME_CHOICE } from "./app";

export type Theme = "system" | "light" | "dark";
export const THEMES: Theme[] = ["system", "light", "dark"];
/** The page applies it when it is loaded. */
export const theme = signal<Theme>(THEMES.find((one) => one === localStorage.getItem(THEME_CHOICE)) ?? "system");

export function setTheme(chosen: Theme): void {
  theme.value = chosen;
  document.documentElement.style.colorScheme = chosen === "system" ? "" : chosen;
  if (chosen === "system") localStorage.removeItem(THEME_CHOICE);
  else localStorage.setItem(THEME_CHOICE, chosen);
}

export function cycleTheme(): void {
  setTheme(THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? "system");
}
