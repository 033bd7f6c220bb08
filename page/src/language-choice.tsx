/** The choice among the languages of the page. */

import { chooseLanguage, language, LANGUAGES, t } from "./language";

export function LanguageChoice() {
  return (
    <select class="language" aria-label={t("Language")} value={language} onChange={(event) => chooseLanguage(event.currentTarget.value)}>
      {Object.entries(LANGUAGES).map(([code, name]) => (
        <option key={code} value={code} lang={code}>{name}</option>
      ))}
    </select>
  );
}
