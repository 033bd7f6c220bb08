/** Files of a message as they are shown: pictures, and names of texts. */

import { IconButton } from "./buttons";
import { Icon } from "./icons";
import { t } from "./language";
import type { Attachment } from "./types";

interface Properties {
  attachments: readonly Attachment[];
  onRemove?: (index: number) => void;
}

export function Attached({ attachments, onRemove }: Properties) {
  if (!attachments.length) return null;
  return (
    <ul class="attached" aria-label={t("Files")}>
      {attachments.map((each, index) => (
        <li key={index}>
          {each.kind === "image" ? <img src={each.data} alt={each.name} /> : <span><Icon name="file" />{each.name}</span>}
          {onRemove && <IconButton icon="close" label={t("Remove {name}", { name: each.name })} onClick={() => onRemove(index)} />}
        </li>
      ))}
    </ul>
  );
}
