export const MIN_FONT_SIZE = 9;
export const MAX_FONT_SIZE = 26;
