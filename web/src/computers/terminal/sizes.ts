export const SMALLEST = 9;
export const LARGEST = 26;
