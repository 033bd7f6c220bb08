/** Buttons that are pictures, with a name for who does not see them. */

import { useState } from "preact/hooks";

import { Icon, type IconName } from "./icons";
import { t } from "./language";

interface Properties {
  icon: IconName;
  label: string;
  onClick: () => void;
  disabled?: boolean;
  pressed?: boolean;
}

/** Whether a click is not the second half of a double click, which may hit a button that was not there at the first. */
export const isFirst = ({ detail }: MouseEvent): boolean => detail < 2;

export function IconButton({ icon, label, onClick, disabled, pressed }: Properties) {
  return (
    <button type="button" class="icon-button" title={label} aria-label={label} aria-pressed={pressed} disabled={disabled} onClick={onClick}>
      <Icon name={icon} />
    </button>
  );
}

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [copied, setCopied] = useState(false);
  const onClick = async () => {
    await copy(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return <IconButton icon={copied ? "check" : "copy"} label={copied ? t("Copied") : label} onClick={() => void onClick()} />;
}

/** Pages that did not come over TLS or from this machine have no clipboard; there a selection is copied. */
async function copy(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
