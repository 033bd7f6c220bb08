/** Dark, light, or as the system has it. */

import { signal } from "@preact/signals";

import { IconButton } from "./buttons";
import { key, t } from "./language";

const THEMES = ["system", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];

const LABELS = { system: key("Colours: system"), light: key("Colours: light"), dark: key("Colours: dark") };

const theme = signal<Theme>((document.documentElement.dataset.theme as Theme | undefined) ?? "system");

export function ThemeChoice() {
  return (
    <div class="themes" role="group" aria-label={t("Colours")}>
      {THEMES.map((each) => (
        <IconButton key={each} icon={each} label={t(LABELS[each])} pressed={theme.value === each} onClick={() => choose(each)} />
      ))}
    </div>
  );
}

function choose(chosen: Theme): void {
  theme.value = chosen;
  if (chosen === "system") {
    localStorage.removeItem("pumice.theme");
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem("pumice.theme", chosen);
    document.documentElement.dataset.theme = chosen;
  }
}
