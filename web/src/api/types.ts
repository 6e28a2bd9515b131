/** Names for what the server says, as the OpenAPI description has it. */

import type { components } from "./schema";

type Schemas = components["schemas"];
export type Schema<Name extends keyof Schemas> = Schemas[Name];
export type * from "./session-events";
