/** Note to the model when a person clicks Continue. */

import i18next from "i18next";

const CONTINUE_NOTE = /^(?:\[note\] )?Go on from where you were\.$/;

/** The text for people if this is the note; null for other texts. */
export function continueNoteText(text: string): string | null {
  return CONTINUE_NOTE.test(text) ? i18next.t("transcript.continued") : null;
}
