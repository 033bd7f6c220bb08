/** A grammar of CSS without the lists of all elements and properties that highlight.js has, which take 13 KB. */

import type { LanguageFn } from "highlight.js";

export const css: LanguageFn = (hljs) => ({
  name: "CSS",
  aliases: ["scss", "less"],
  contains: [
    hljs.C_BLOCK_COMMENT_MODE,
    hljs.QUOTE_STRING_MODE,
    hljs.APOS_STRING_MODE,
    { scope: "keyword", match: /@[\w-]+/ },
    { scope: "selector-id", match: /#[A-Za-z_][\w-]*(?=[^;}]*\{)/ },
    { scope: "selector-class", match: /\.[A-Za-z_][\w-]*/ },
    { scope: "selector-pseudo", match: /::?[a-z-]+(?=[^;}]*\{)/ },
    { scope: "attribute", match: /--[\w-]+|\b[a-z-]+(?=\s*:[^{}]*[;}])/ },
    { scope: "number", match: /#[\da-fA-F]{3,8}\b|[+-]?(?:\d+\.?\d*|\.\d+)(?:%|[a-z]+)?/ },
    { scope: "built_in", match: /[a-z-]+(?=\()/ },
    { scope: "keyword", match: /!important\b/ },
  ],
});
