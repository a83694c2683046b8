// @ts-check
// What each loss means. Generated from `core/hub/losses.py` by `scripts/reference`.

/** @type {Record<string, { meaning: string, lost: string }>} */
export const LOSSES = {
 "attribution-dropped": {
  "meaning": "The system prompt has a block that Claude Code addresses to Anthropic, and the provider is another one.",
  "lost": "The block; it is not an instruction to the model."
 },
 "cache-hint-dropped": {
  "meaning": "A part of the request is marked for the provider's prompt cache, and the provider's API has no such mark.",
  "lost": "The provider may cache less, or by its own rules."
 },
 "content-dropped": {
  "meaning": "A part of the conversation exists only in the client's API, or is a file of a type that the provider's lacks.",
  "lost": "The model does not see that part."
 },
 "error-flag-as-text": {
  "meaning": "A tool's result is marked as an error, and the provider's API has no such mark.",
  "lost": "The mark; the result begins with the word `Error:` instead."
 },
 "field-dropped": {
  "meaning": "A field of the request, or of the answer, exists in one of the two APIs only, or many providers refuse it.",
  "lost": "What the field asks for, or reports."
 },
 "max-tokens-assumed": {
  "meaning": "The provider's API requires a limit on the output, and the client set none.",
  "lost": "Answers longer than the assumed limit end with the finish reason `length`."
 },
 "max-tokens-raised": {
  "meaning": "The limit on the output is below the least that the provider's API accepts.",
  "lost": "The answer may be a few tokens longer."
 },
 "option-refused-by-provider": {
  "meaning": "The provider is known to refuse a field that the client sent, so the field is removed.",
  "lost": "What the field asks for; usage that the client asked for is still reported by Penstock."
 },
 "option-clamped": {
  "meaning": "A number that the client sent is outside the limits that the provider is known to have.",
  "lost": "The nearest value that the provider takes is sent."
 },
 "proxy-option-dropped": {
  "meaning": "The request has a member by which clients control LiteLLM's proxy, such as `num_retries`.",
  "lost": "What the member asks for; no provider gets it."
 },
 "prefill-not-continued": {
  "meaning": "The conversation ends with the beginning of an answer, and providers of this API may not continue it.",
  "lost": "The answer may start anew, or repeat the beginning."
 },
 "reasoning-dropped": {
  "meaning": "Earlier reasoning of the model cannot be sent to this provider.",
  "lost": "The model does not see its earlier reasoning."
 },
 "result-media-moved": {
  "meaning": "A tool's result contains an image or a file, and the provider's API allows only text there.",
  "lost": "Nothing: the media are sent in a user message after it."
 },
 "sampling-dropped": {
  "meaning": "The provider's API lacks a sampling setting that the client sent.",
  "lost": "The setting."
 },
 "server-tool-dropped": {
  "meaning": "The client offers a tool that its own provider would execute, and the target has no such tool.",
  "lost": "The model cannot use the tool."
 },
 "stop-dropped": {
  "meaning": "The provider's API has no stop sequences, or fewer than the client sent, or none of white space only.",
  "lost": "The answer continues where the client wanted it to end."
 },
 "stop-sequence-unreported": {
  "meaning": "The request has stop sequences, and the provider's API does not report which of them ended the answer.",
  "lost": "The client cannot tell an answer that ended at a stop sequence from one that was complete."
 },
 "tool-option-dropped": {
  "meaning": "A tool has an option that the provider's API lacks.",
  "lost": "The option; the tool itself stays."
 },
 "effort-approximated": {
  "meaning": "The provider expresses reasoning effort in another way: in levels, or as a budget of tokens; or it refuses reasoning together with something else in the request.",
  "lost": "The exact level or budget: the nearest one is used, or none."
 },
 "grammar-dropped": {
  "meaning": "A tool restricts its input by a grammar, and the provider's API has no grammars.",
  "lost": "The grammar."
 },
 "schema-loosened": {
  "meaning": "The provider's API has no mode for any JSON object, or lacks a keyword of JSON Schema; the detail names it.",
  "lost": "The guarantee that the answer is JSON, or that it fulfils the keyword."
 },
 "system-moved": {
  "meaning": "The provider refuses system messages between other messages.",
  "lost": "The role; the text is in the user message that follows."
 },
 "temperature-clamped": {
  "meaning": "The temperature exceeds the maximum of the provider's API.",
  "lost": "What exceeds it."
 },
 "tool-choice-widened": {
  "meaning": "The request allows some tools only, or demands a call, and the provider's API cannot express that.",
  "lost": "The restriction, or the demand."
 },
 "tool-withheld": {
  "meaning": "A tool is deferred and nothing in the conversation has added it, or the conversation has removed it. The provider's API has only tools that the model may call at once.",
  "lost": "The definition of the tool, until a reference or a message adds the tool."
 },
 "tools-unseen": {
  "meaning": "The request has tools, or earlier calls of tools, and the chat template of the model on this machine has no place for them.",
  "lost": "The model does not see the tools or the calls, and cannot call a tool."
 },
 "arguments-as-text": {
  "meaning": "The arguments of a call are not a JSON object, usually because the limit on the output cut them off, or they are too complex to decode, and the client's API has objects only.",
  "lost": "The form: the arguments are an object with the text as its member `input`."
 },
 "arguments-dropped": {
  "meaning": "The provider goes on with the arguments of a call whose JSON was complete, after it has begun something else, and the client's API has one block after the other.",
  "lost": "What follows the complete JSON."
 },
 "choices-dropped": {
  "meaning": "The provider sent several choices, and the client's API has only one.",
  "lost": "All choices but the first."
 },
 "citation-dropped": {
  "meaning": "The client's API has no field for a citation; or, in a conversation, the provider's API has none.",
  "lost": "The citation; the text that it belongs to stays."
 },
 "media-dropped": {
  "meaning": "The model sent an image, audio or video, and the client's API has no field for it.",
  "lost": "The media."
 },
 "pause-unknown": {
  "meaning": "The provider paused a long answer, to be asked to go on, and the client's API has no such ending.",
  "lost": "The client takes the answer for complete."
 },
 "reasoning-hidden": {
  "meaning": "The provider sends reasoning. The client did not ask for it, and its API sends none then.",
  "lost": "The text of the reasoning. Its tokens are reported and billed."
 },
 "seal-dropped": {
  "meaning": "A provider signed its reasoning, and another one, or the client's API, has no use for the signature.",
  "lost": "The signature; the text of the reasoning stays."
 },
 "server-activity-hidden": {
  "meaning": "The provider executed a tool itself, and the client's API cannot express that.",
  "lost": "The call and its result; the text that the model wrote from them stays."
 }
};
