/** Make a text area as high as its text; with `focus`, put the cursor at its end when it appears. */
export function sized(area: HTMLTextAreaElement | null, focus = false): void {
  if (!area) return;
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight}px`;
  if (focus && !area.dataset.begun) {
    area.dataset.begun = "true";
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}
