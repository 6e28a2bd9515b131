/** Name that the console's model tests have in the archive. */
export const MODEL_TEST_CLIENT = "paddock-console/model-test";
