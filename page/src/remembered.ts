/** Values that the browser keeps under a name: settings, prompts, decisions. */

/** Return the object kept under `name`; an empty one if there is none, or what is kept is no object. */
export function remembered(name: string): Record<string, any> {
  try {
    const value = JSON.parse(localStorage.getItem(name) ?? "{}");
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
  } catch {
    return {};
  }
}
